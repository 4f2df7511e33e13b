package main

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const manager = "node.conformance.tunnelgw.dev"

// writeSlices brings the EndpointSlices of Services with selectors up to date.
func (n *node) writeSlices(ctx context.Context, active map[string]bool, pods []*corev1.Pod) {
	services, _ := n.service.List(labels.Everything())
	byUID := map[types.UID]bool{}
	for _, s := range services {
		byUID[s.UID] = true
		if active[s.Namespace] && s.DeletionTimestamp == nil && len(s.Spec.Selector) > 0 {
			n.writeSlice(ctx, s, pods)
		}
	}
	ours, _ := n.slice.List(labels.SelectorFromSet(labels.Set{discoveryv1.LabelManagedBy: manager}))
	for _, s := range ours {
		if o := metav1.GetControllerOf(s); o == nil || !byUID[o.UID] {
			report("delete slice", n.cs.DiscoveryV1().EndpointSlices(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{}))
		}
	}
}

func (n *node) writeSlice(ctx context.Context, s *corev1.Service, pods []*corev1.Pod) {
	selector := labels.SelectorFromSet(s.Spec.Selector)
	want := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
	want.Name, want.Namespace = s.Name+"-"+short(5, s.UID), s.Namespace
	want.Labels = map[string]string{discoveryv1.LabelServiceName: s.Name, discoveryv1.LabelManagedBy: manager}
	if s.Spec.ClusterIP == corev1.ClusterIPNone {
		want.Labels[corev1.IsHeadlessService] = ""
	}
	want.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(s, corev1.SchemeGroupVersion.WithKind("Service"))}
	var sample *corev1.Pod
	for _, p := range pods {
		if p.Namespace != s.Namespace || p.Status.PodIP == "" || !selector.Matches(labels.Set(p.Labels)) {
			continue
		}
		sample = p
		terminating, serving := p.DeletionTimestamp != nil, podReady(p)
		ready := serving && !terminating
		want.Endpoints = append(want.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{p.Status.PodIP},
			Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating},
			NodeName:   &p.Spec.NodeName,
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID},
		})
	}
	for _, sp := range s.Spec.Ports {
		if number := targetPort(sp, sample); number > 0 {
			want.Ports = append(want.Ports, discoveryv1.EndpointPort{Name: &sp.Name, Protocol: &sp.Protocol, Port: &number, AppProtocol: sp.AppProtocol})
		}
	}
	// The cache gives them in any order; a stable one avoids needless writes.
	slices.SortFunc(want.Endpoints, func(a, b discoveryv1.Endpoint) int { return strings.Compare(a.Addresses[0], b.Addresses[0]) })
	api := n.cs.DiscoveryV1().EndpointSlices(s.Namespace)
	have, err := n.slice.EndpointSlices(s.Namespace).Get(want.Name)
	if apierrors.IsNotFound(err) {
		_, err = api.Create(ctx, want, metav1.CreateOptions{})
		report("create slice", err)
		return
	}
	if err == nil && (!equality.Semantic.DeepEqual(have.Endpoints, want.Endpoints) || !equality.Semantic.DeepEqual(have.Ports, want.Ports)) {
		c := have.DeepCopy()
		c.Endpoints, c.Ports = want.Endpoints, want.Ports
		_, err = api.Update(ctx, c, metav1.UpdateOptions{})
		report("update slice", err)
	}
}

// targetPort is 0 for a name that the pod does not have.
func targetPort(sp corev1.ServicePort, p *corev1.Pod) int32 {
	if sp.TargetPort.Type == intstr.Int {
		if sp.TargetPort.IntVal > 0 {
			return sp.TargetPort.IntVal
		}
		return sp.Port
	}
	if p != nil {
		for _, c := range p.Spec.Containers {
			for _, cp := range c.Ports {
				if cp.Name == sp.TargetPort.StrVal {
					return cp.ContainerPort
				}
			}
		}
	}
	return 0
}
