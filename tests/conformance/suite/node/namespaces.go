package main

import (
	"context"
	"log"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

const sweepPause = 300 * time.Millisecond

// emptyNamespace deletes what is in a terminating namespace and then lets it
// go. Objects with finalizers hold it, as in a real cluster.
func (n *node) emptyNamespace(ctx context.Context, name string) {
	n.mu.Lock()
	busy := n.emptying[name]
	n.emptying[name] = true
	n.mu.Unlock()
	if busy {
		return
	}
	go func() {
		defer func() {
			n.mu.Lock()
			delete(n.emptying, name)
			n.mu.Unlock()
		}()
		for ctx.Err() == nil {
			left := n.sweep(ctx, name)
			if left == 0 {
				ns, err := n.cs.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return
				}
				ns.Spec.Finalizers = nil
				if _, err = n.cs.CoreV1().Namespaces().Finalize(ctx, ns, metav1.UpdateOptions{}); err == nil {
					log.Printf("namespace %s is gone", name)
					return
				}
				report("finalize namespace", err)
			}
			time.Sleep(sweepPause)
		}
	}()
}

func (n *node) sweep(ctx context.Context, ns string) (left int) {
	lists, err := discovery.ServerPreferredNamespacedResources(n.disco)
	if err != nil && len(lists) == 0 {
		return 1
	}
	now := int64(0)
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "deletecollection"}}, lists) {
		gv, _ := schema.ParseGroupVersion(list.GroupVersion)
		if gv.Group == "events.k8s.io" {
			continue // the same objects as core events
		}
		for _, r := range list.APIResources {
			api := n.dyn.Resource(gv.WithResource(r.Name)).Namespace(ns)
			items, err := api.List(ctx, metav1.ListOptions{})
			if err != nil || len(items.Items) == 0 {
				continue
			}
			report("empty namespace "+ns, api.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{}))
			if items, err = api.List(ctx, metav1.ListOptions{}); err == nil {
				left += len(items.Items)
			}
		}
	}
	return left
}
