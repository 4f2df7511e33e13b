// Command loadedge is an edge for benchmarks: connectors dial it over TLS, register, and are sent load.
//
// It prints one JSON object with its addresses, then reads one command per line from standard input and replies to each
// with one line. It checks no tokens: any connector is registered. It is driven by the package benchmarks.tunnel.
package main

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("loadedge: ")
	certificate := flag.String("certificate", "", "file with certificate chain and private key (PEM)")
	count := flag.Int("addresses", 4, "how many ports to listen on")
	flag.Parse()
	pair, err := tls.LoadX509KeyPair(*certificate, *certificate)
	if err != nil {
		log.Fatal(err)
	}
	edge := NewEdge()
	var addresses []string
	for range *count {
		listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
		if err != nil {
			log.Fatal(err)
		}
		addresses = append(addresses, listener.Addr().String())
		go accept(listener, edge)
	}
	answer(map[string]any{"addresses": addresses})
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var command Command
		if err := json.Unmarshal(lines.Bytes(), &command); err != nil {
			log.Fatalf("command %q: %v", lines.Text(), err)
		}
		reply, err := edge.Do(command)
		if err != nil {
			answer(map[string]any{"error": err.Error()})
			continue
		}
		answer(reply)
	}
}

func accept(listener net.Listener, edge *Edge) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go edge.Serve(conn)
	}
}

func answer(reply any) {
	line, err := json.Marshal(reply)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(line))
}
