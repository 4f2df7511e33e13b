package main

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func (n *node) scale(ctx context.Context, d *appsv1.Deployment, have []*corev1.Pod) {
	want := 1
	if d.Spec.Replicas != nil {
		want = int(*d.Spec.Replicas)
	}
	hash := short(10, d.Spec.Template)
	names := map[string]bool{}
	for i := range want {
		// <deployment>-<hash>-<suffix>, as a ReplicaSet would name it
		names[fmt.Sprintf("%s-%s-%s", d.Name, hash, short(5, d.UID, hash, i))] = true
	}
	var current []*corev1.Pod
	for _, p := range have {
		if names[p.Name] {
			current = append(current, p)
			delete(names, p.Name)
		} else {
			n.removePod(ctx, p)
		}
	}
	for name := range names {
		t := d.Spec.Template.DeepCopy()
		p := &corev1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec}
		p.Name, p.Namespace = name, d.Namespace
		if p.Labels == nil {
			p.Labels = map[string]string{}
		}
		p.Labels["pod-template-hash"] = hash
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))}
		p.Spec.NodeName = nodeName
		_, err := n.cs.CoreV1().Pods(d.Namespace).Create(ctx, p, metav1.CreateOptions{})
		report("create pod "+d.Namespace+"/"+name, err)
	}
	ready := 0
	for _, p := range current {
		if podReady(p) {
			ready++
		}
	}
	st := appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: int32(len(current)), UpdatedReplicas: int32(len(current)),
		ReadyReplicas: int32(ready), AvailableReplicas: int32(ready), UnavailableReplicas: int32(max(0, want-ready))}
	st.Conditions = []appsv1.DeploymentCondition{
		condition(d, appsv1.DeploymentAvailable, ready >= want, "MinimumReplicasAvailable", "MinimumReplicasUnavailable"),
		condition(d, appsv1.DeploymentProgressing, true, "NewReplicaSetAvailable", ""),
	}
	if !equality.Semantic.DeepEqual(st, d.Status) {
		c := d.DeepCopy()
		c.Status = st
		_, err := n.cs.AppsV1().Deployments(d.Namespace).UpdateStatus(ctx, c, metav1.UpdateOptions{})
		report("status of deployment "+d.Namespace+"/"+d.Name, err)
	}
}

func condition(d *appsv1.Deployment, kind appsv1.DeploymentConditionType, good bool, yes, no string) appsv1.DeploymentCondition {
	c := appsv1.DeploymentCondition{Type: kind, Status: corev1.ConditionTrue, Reason: yes, LastUpdateTime: metav1.Now(), LastTransitionTime: metav1.Now()}
	if !good {
		c.Status, c.Reason = corev1.ConditionFalse, no
	}
	for _, old := range d.Status.Conditions {
		if old.Type == kind && old.Status == c.Status && old.Reason == c.Reason {
			return old
		}
	}
	return c
}
