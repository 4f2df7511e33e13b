// The command node stands in for what the conformance suite needs of a cluster
// and a bare API server lacks: it turns Deployments into running Pods (whose
// containers are servers inside this process, each on its own address), writes
// EndpointSlices, serves Pod logs and finishes the deletion of namespaces.
//
// Pods of images other than the suite's echo server are reported ready with
// nothing behind them. There is no other controller, no garbage collection, no
// DNS, and nothing listens on the cluster addresses of Services.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	slicelisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	nodeName    = "conformance"
	kubeletPort = 10250
	tickEvery   = 2 * time.Second
	gatherFor   = 20 * time.Millisecond // events come in bursts
)

type node struct {
	ip string

	cs        kubernetes.Interface
	dyn       dynamic.Interface
	disco     discovery.DiscoveryInterface
	namespace corelisters.NamespaceLister
	account   corelisters.ServiceAccountLister
	secret    corelisters.SecretLister
	configMap corelisters.ConfigMapLister
	service   corelisters.ServiceLister
	pod       corelisters.PodLister
	deploy    appslisters.DeploymentLister
	slice     slicelisters.EndpointSliceLister

	mu       sync.Mutex // guards what the log server and namespace workers touch
	running  map[types.UID]*runningPod
	nextIP   netip.Addr
	emptying map[string]bool
}

func main() {
	log.SetFlags(log.Ltime | log.Lmicroseconds)
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	podNet := flag.String("pod-cidr", "", "addresses of Pods; the range must be local to this network namespace")
	readyFile := flag.String("ready-file", "", "file to write once everything is running")
	flag.Parse()
	prefix, err := netip.ParsePrefix(*podNet)
	check(err)
	conf, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	check(err)
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()

	n := newNode(conf, prefix)
	changes := n.watch(ctx)
	logs, err := serveLogs(net.JoinHostPort(n.ip, strconv.Itoa(kubeletPort)), n.findLog)
	check(err)
	defer logs.Close()
	check(n.writeNode(ctx))
	log.Printf("node %s at %s, pods from %s", nodeName, n.ip, prefix)
	n.reconcile(ctx)
	check(os.WriteFile(*readyFile, nil, 0o644))
	for tick := time.NewTicker(tickEvery); ; n.reconcile(ctx) {
		select {
		case <-ctx.Done():
			return
		case <-changes:
			time.Sleep(gatherFor)
		case <-tick.C:
		}
	}
}

// newNode takes the first address of the range for itself.
func newNode(conf *rest.Config, podNet netip.Prefix) *node {
	conf.QPS = -1
	clients := kubernetes.NewForConfigOrDie(conf)
	own := podNet.Masked().Addr().Next()
	return &node{
		ip:       own.String(),
		nextIP:   own.Next(),
		cs:       clients,
		dyn:      dynamic.NewForConfigOrDie(conf),
		disco:    clients.Discovery(),
		running:  map[types.UID]*runningPod{},
		emptying: map[string]bool{},
	}
}

// watch fills the caches; what it returns tells that something has changed since it was read last.
func (n *node) watch(ctx context.Context) <-chan struct{} {
	f := informers.NewSharedInformerFactory(n.cs, 0)
	core, apps, slices := f.Core().V1(), f.Apps().V1(), f.Discovery().V1()
	n.namespace, n.account = core.Namespaces().Lister(), core.ServiceAccounts().Lister()
	n.secret, n.configMap = core.Secrets().Lister(), core.ConfigMaps().Lister()
	n.service, n.pod = core.Services().Lister(), core.Pods().Lister()
	n.deploy, n.slice = apps.Deployments().Lister(), slices.EndpointSlices().Lister()

	changes := make(chan struct{}, 1)
	tell := func() {
		select {
		case changes <- struct{}{}:
		default:
		}
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { tell() },
		UpdateFunc: func(any, any) { tell() },
		DeleteFunc: func(any) { tell() },
	}
	for _, informer := range []cache.SharedIndexInformer{
		core.Namespaces().Informer(), core.ServiceAccounts().Informer(), core.Secrets().Informer(),
		core.ConfigMaps().Informer(), core.Services().Informer(), core.Pods().Informer(),
		apps.Deployments().Informer(), slices.EndpointSlices().Informer(),
	} {
		_, err := informer.AddEventHandler(handler)
		check(err)
	}
	f.Start(ctx.Done())
	f.WaitForCacheSync(ctx.Done())
	return changes
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
