package main

import (
	"context"
	"crypto/tls"
	"log"
	"regexp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const youngFor = 5 * time.Second

// echoImages are those that become servers of ours.
var echoImages = regexp.MustCompile(`(^|/)echo-basic(:|@|$)`)

type runningPod struct {
	ns, name, ip string
	log          *podLog
	backend      *backend // nil: nothing to run
	since        metav1.Time
}

func podReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func (r *runningPod) stop() {
	if r.backend != nil {
		r.backend.stop()
	}
}

func (n *node) findLog(ns, pod string) *podLog {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range n.running {
		if r.ns == ns && r.name == pod {
			return r.log
		}
	}
	return nil
}

func (n *node) removePod(ctx context.Context, p *corev1.Pod) {
	n.mu.Lock()
	if r := n.running[p.UID]; r != nil {
		r.stop()
		delete(n.running, p.UID)
	}
	n.mu.Unlock()
	now := int64(0)
	err := n.cs.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
	report("delete pod "+p.Namespace+"/"+p.Name, err)
}

// tendPods runs the Pods of this node, ends those that must go, and returns the others by the UID of their owner.
func (n *node) tendPods(ctx context.Context, deployments []*appsv1.Deployment, pods []*corev1.Pod) map[types.UID][]*corev1.Pod {
	alive := map[types.UID]bool{}
	for _, d := range deployments {
		alive[d.UID] = true
	}
	owned, seen := map[types.UID][]*corev1.Pod{}, map[types.UID]bool{}
	for _, p := range pods {
		if p.Spec.NodeName != nodeName {
			continue
		}
		seen[p.UID] = true
		owner := metav1.GetControllerOf(p)
		if p.DeletionTimestamp != nil || owner != nil && owner.Kind == "Deployment" && !alive[owner.UID] {
			n.removePod(ctx, p)
			continue
		}
		if owner != nil {
			owned[owner.UID] = append(owned[owner.UID], p)
		}
		n.runPod(ctx, p)
	}
	n.stopLost(seen)
	return owned
}

// stopLost ends what runs for Pods that are gone. The caches may not have seen a young one yet.
func (n *node) stopLost(seen map[types.UID]bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for uid, r := range n.running {
		if !seen[uid] && time.Since(r.since.Time) > youngFor {
			r.stop()
			delete(n.running, uid)
		}
	}
}

func (n *node) runPod(ctx context.Context, p *corev1.Pod) {
	n.mu.Lock()
	r := n.running[p.UID]
	n.mu.Unlock()
	if r == nil {
		var err error
		if r, err = n.startPod(p); err != nil {
			// Like a container that waits for its volumes: a later event tries again.
			log.Printf("pod %s/%s: %v", p.Namespace, p.Name, err)
			return
		}
	}
	if p.Status.Phase != corev1.PodRunning || p.Status.PodIP != r.ip || !podReady(p) {
		n.writePodStatus(ctx, p, r)
	}
}

func (n *node) startPod(p *corev1.Pod) (*runningPod, error) {
	r := &runningPod{ns: p.Namespace, name: p.Name, log: &podLog{}, since: metav1.Now(), ip: n.nextIP.String()}
	if echoImages.MatchString(p.Spec.Containers[0].Image) {
		r.backend = &backend{ip: r.ip, env: environment(p, r.ip), log: r.log.printf}
		cert, key := r.backend.env["TLS_SERVER_CERT"], r.backend.env["TLS_SERVER_PRIVKEY"]
		if cert != "" && key != "" {
			ca := r.backend.env["TLS_CLIENT_CACERTS"]
			r.backend.tls = func() (*tls.Config, error) { return n.tlsConfig(p, cert, key, ca) }
			if _, err := r.backend.tls(); err != nil {
				return nil, err
			}
		}
		if err := r.backend.start(); err != nil {
			return nil, err
		}
	}
	n.nextIP = n.nextIP.Next()
	n.mu.Lock()
	n.running[p.UID] = r
	n.mu.Unlock()
	log.Printf("pod %s/%s runs at %s (echo: %v)", p.Namespace, p.Name, r.ip, r.backend != nil)
	return r, nil
}

func (n *node) writePodStatus(ctx context.Context, p *corev1.Pod, r *runningPod) {
	c := p.DeepCopy()
	c.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, HostIP: n.ip, HostIPs: []corev1.HostIP{{IP: n.ip}},
		PodIP: r.ip, PodIPs: []corev1.PodIP{{IP: r.ip}}, StartTime: &r.since, QOSClass: p.Status.QOSClass,
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		c.Status.Conditions = append(c.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: r.since})
	}
	yes := true
	for _, k := range p.Spec.Containers {
		c.Status.ContainerStatuses = append(c.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: k.Name, Image: k.Image, ImageID: k.Image, ContainerID: "conformance://" + string(p.UID), Ready: true, Started: &yes,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: r.since}},
		})
	}
	_, err := n.cs.CoreV1().Pods(p.Namespace).UpdateStatus(ctx, c, metav1.UpdateOptions{})
	report("status of pod "+p.Namespace+"/"+p.Name, err)
}

func environment(p *corev1.Pod, ip string) map[string]string {
	env := map[string]string{}
	for _, e := range p.Spec.Containers[0].Env {
		env[e.Name] = e.Value
		if e.ValueFrom != nil && e.ValueFrom.FieldRef != nil {
			env[e.Name] = map[string]string{"metadata.name": p.Name, "metadata.namespace": p.Namespace, "status.podIP": ip,
				"metadata.uid": string(p.UID), "spec.nodeName": p.Spec.NodeName}[e.ValueFrom.FieldRef.FieldPath]
		}
	}
	return env
}
