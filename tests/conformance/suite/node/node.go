package main

import (
	"context"
	"encoding/json"
	"hash/fnv"
	"log"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// reconcile looks at everything again: a few dozen objects, from caches.
func (n *node) reconcile(ctx context.Context) {
	active := n.tendNamespaces(ctx)
	deployments, _ := n.deploy.List(labels.Everything())
	pods, _ := n.pod.List(labels.Everything())
	owned := n.tendPods(ctx, deployments, pods)
	for _, d := range deployments {
		if active[d.Namespace] && d.DeletionTimestamp == nil {
			n.scale(ctx, d, owned[d.UID])
		}
	}
	n.writeSlices(ctx, active, pods)
}

// tendNamespaces empties those that are going, and returns the others, which have a default ServiceAccount.
func (n *node) tendNamespaces(ctx context.Context) map[string]bool {
	namespaces, _ := n.namespace.List(labels.Everything())
	active := map[string]bool{}
	for _, ns := range namespaces {
		if ns.DeletionTimestamp != nil {
			n.emptyNamespace(ctx, ns.Name)
			continue
		}
		active[ns.Name] = true
		if _, err := n.account.ServiceAccounts(ns.Name).Get("default"); apierrors.IsNotFound(err) {
			account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
			_, err := n.cs.CoreV1().ServiceAccounts(ns.Name).Create(ctx, account, metav1.CreateOptions{})
			report("service account "+ns.Name+"/default", err)
		}
	}
	return active
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
	made, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	made.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: n.ip}}
	made.Status.DaemonEndpoints.KubeletEndpoint.Port = kubeletPort
	_, err = nodes.UpdateStatus(ctx, made, metav1.UpdateOptions{})
	return err
}
