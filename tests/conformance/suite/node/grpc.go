package main

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	pb "sigs.k8s.io/gateway-api/conformance/echo-basic/grpcechoserver"
)

type grpcEcho struct {
	pb.UnimplementedGrpcEchoServer // leaves EchoThree unimplemented, as wanted
	b                              *backend
}

func (g grpcEcho) answer(ctx context.Context, method string) (*pb.EchoResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	id := g.b.identity()
	a := &pb.Assertions{
		FullyQualifiedMethod: "/" + string(pb.File_grpcecho_proto.Services().Get(0).FullName()) + "/" + method,
		Context:              &pb.Context{Namespace: id.Namespace, Ingress: id.Ingress, ServiceName: id.Service, Pod: id.Pod},
	}
	for k, values := range md {
		for _, v := range values {
			a.Headers = append(a.Headers, &pb.Header{Key: k, Value: v})
			if k == ":authority" {
				a.Authority = v
			}
		}
	}
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			f := factsOf(&info.State)
			a.TlsAssertions = &pb.TLSAssertions{Version: f.Version, ServerName: f.ServerName,
				NegotiatedProtocol: f.ALPN, CipherSuite: f.Cipher, PeerCertificates: f.Peers}
		}
	}
	g.b.log("gRPC %s for authority %s", method, a.Authority)
	return &pb.EchoResponse{Assertions: a}, nil
}

func (g grpcEcho) Echo(ctx context.Context, _ *pb.EchoRequest) (*pb.EchoResponse, error) {
	return g.answer(ctx, "Echo")
}

func (g grpcEcho) EchoTwo(ctx context.Context, _ *pb.EchoRequest) (*pb.EchoResponse, error) {
	return g.answer(ctx, "EchoTwo")
}

func (b *backend) startGRPC() error {
	serve := func(l net.Listener, opts ...grpc.ServerOption) {
		s := grpc.NewServer(opts...)
		pb.RegisterGrpcEchoServer(s, grpcEcho{b: b})
		b.closers = append(b.closers, s.Stop)
		go s.Serve(l)
	}
	l, err := b.listen(b.port("HTTP_PORT", "3000"))
	if err != nil {
		return err
	}
	serve(l)
	if b.tls != nil {
		l, conf, err := b.tlsListener(b.port("HTTPS_PORT", "8443"), "h2")
		if err != nil {
			return err
		}
		serve(l, grpc.Creds(credentials.NewTLS(conf)))
	}
	return nil
}
