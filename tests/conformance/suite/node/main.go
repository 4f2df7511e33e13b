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
	"net/netip"
	"os"
	"os/signal"
	"regexp"
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
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

type node struct {
	name, ip    string
	kubeletPort int
	echoImages  *regexp.Regexp

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
	n := &node{running: map[types.UID]*runningPod{}, emptying: map[string]bool{}}
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "how to reach the API server (default $KUBECONFIG)")
	podNet := flag.String("pod-cidr", "10.244.0.0/16", "pod addresses; the range must be local to this network namespace")
	images := flag.String("echo-images", `(^|/)echo-basic(:|@|$)`, "images (regular expression) that become echo servers")
	readyFile := flag.String("ready-file", "", "file to write once everything is running")
	flag.StringVar(&n.name, "node-name", "conformance", "name of the Node object")
	flag.IntVar(&n.kubeletPort, "kubelet-port", 10250, "port of the log server on the node's address")
	flag.Parse()

	n.echoImages = regexp.MustCompile(*images)
	prefix, err := netip.ParsePrefix(*podNet)
	check(err)
	first := prefix.Masked().Addr().Next()
	n.ip = first.String()
	n.nextIP = first.Next()

	conf, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	check(err)
	conf.QPS = -1
	n.cs = kubernetes.NewForConfigOrDie(conf)
	n.dyn = dynamic.NewForConfigOrDie(conf)
	n.disco = n.cs.Discovery()

	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()

	kick := make(chan struct{}, 1)
	poke := func() {
		select {
		case kick <- struct{}{}:
		default:
		}
	}
	f := informers.NewSharedInformerFactory(n.cs, 0)
	core := f.Core().V1()
	n.namespace, n.account = core.Namespaces().Lister(), core.ServiceAccounts().Lister()
	n.secret, n.configMap = core.Secrets().Lister(), core.ConfigMaps().Lister()
	n.service, n.pod = core.Services().Lister(), core.Pods().Lister()
	n.deploy, n.slice = f.Apps().V1().Deployments().Lister(), f.Discovery().V1().EndpointSlices().Lister()
	for _, inf := range []cache.SharedIndexInformer{
		core.Namespaces().Informer(), core.ServiceAccounts().Informer(), core.Secrets().Informer(), core.ConfigMaps().Informer(),
		core.Services().Informer(), core.Pods().Informer(), f.Apps().V1().Deployments().Informer(), f.Discovery().V1().EndpointSlices().Informer(),
	} {
		_, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { poke() }, UpdateFunc: func(any, any) { poke() }, DeleteFunc: func(any) { poke() },
		})
		check(err)
	}
	f.Start(ctx.Done())
	f.WaitForCacheSync(ctx.Done())

	logs, err := serveLogs(netip.AddrPortFrom(first, uint16(n.kubeletPort)).String(), n.findLog)
	check(err)
	defer logs.Close()
	check(n.writeNode(ctx))
	log.Printf("node %s at %s, pods from %s", n.name, n.ip, prefix)

	tick := time.NewTicker(2 * time.Second)
	for first := true; ; first = false {
		n.reconcile(ctx)
		if first && *readyFile != "" {
			check(os.WriteFile(*readyFile, []byte("ready\n"), 0o644))
		}
		select {
		case <-ctx.Done():
			return
		case <-kick:
			time.Sleep(20 * time.Millisecond) // gather a burst of events
		case <-tick.C:
		}
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
