package main

import (
	"context"
	"encoding/json"
	"hash/fnv"
	"log"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// reconcile looks at everything again: a few dozen objects, from caches.
func (n *node) reconcile(ctx context.Context) {
	namespaces, _ := n.namespace.List(labels.Everything())
	active := map[string]bool{}
	for _, ns := range namespaces {
		if ns.DeletionTimestamp != nil {
			n.emptyNamespace(ctx, ns.Name)
			continue
		}
		active[ns.Name] = true
		if _, err := n.account.ServiceAccounts(ns.Name).Get("default"); apierrors.IsNotFound(err) {
			_, err := n.cs.CoreV1().ServiceAccounts(ns.Name).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
			report("service account "+ns.Name+"/default", err)
		}
	}
	deployments, _ := n.deploy.List(labels.Everything())
	byUID := map[types.UID]*appsv1.Deployment{}
	for _, d := range deployments {
		byUID[d.UID] = d
	}
	pods, _ := n.pod.List(labels.Everything())
	owned := map[types.UID][]*corev1.Pod{}
	seen := map[types.UID]bool{}
	for _, p := range pods {
		if p.Spec.NodeName != n.name {
			continue
		}
		seen[p.UID] = true
		owner := metav1.GetControllerOf(p)
		switch {
		case p.DeletionTimestamp != nil, owner != nil && owner.Kind == "Deployment" && byUID[owner.UID] == nil:
			n.removePod(ctx, p)
		default:
			if owner != nil {
				owned[owner.UID] = append(owned[owner.UID], p)
			}
			n.runPod(ctx, p)
		}
	}
	n.mu.Lock()
	for uid, r := range n.running {
		if !seen[uid] && time.Since(r.since.Time) > 5*time.Second {
			r.stop()
			delete(n.running, uid)
		}
	}
	n.mu.Unlock()
	for _, d := range deployments {
		if active[d.Namespace] && d.DeletionTimestamp == nil {
			n.scale(ctx, d, owned[d.UID])
		}
	}
	n.writeSlices(ctx, active, pods)
}

func report(what string, err error) {
	if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		log.Printf("%s: %v", what, err)
	}
}

// short returns w characters that are the same for the same input.
func short(w int, parts ...any) string {
	h := fnv.New64a()
	js, _ := json.Marshal(parts)
	h.Write(js)
	const alphabet = "bcdfghjklmnpqrstvwxz2456789"
	out := make([]byte, w)
	for i, v := 0, h.Sum64(); i < w; i++ {
		out[i] = alphabet[v%uint64(len(alphabet))]
		v /= uint64(len(alphabet))
	}
	return string(out)
}

// writeNode makes the Node that pods are bound to; the API server asks it for logs.
func (n *node) writeNode(ctx context.Context) error {
	nodes := n.cs.CoreV1().Nodes()
	obj, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: map[string]string{"kubernetes.io/hostname": n.name}}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		obj, err = nodes.Get(ctx, n.name, metav1.GetOptions{})
	}
	if err != nil {
		return err
	}
	obj.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: n.ip}, {Type: corev1.NodeHostName, Address: n.name}}
	obj.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(n.kubeletPort)
	obj.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Fake",
		LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}}
	_, err = nodes.UpdateStatus(ctx, obj, metav1.UpdateOptions{})
	return err
}
