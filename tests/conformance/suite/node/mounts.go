package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// tlsConfig reads the files named in the pod's environment out of the Secrets
// and ConfigMaps that its volumes would have mounted.
func (n *node) tlsConfig(p *corev1.Pod, cert, key, ca string) (*tls.Config, error) {
	crt, err := n.mounted(p, cert)
	if err != nil {
		return nil, err
	}
	k, err := n.mounted(p, key)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(crt, k)
	if err != nil {
		return nil, err
	}
	conf := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := n.mounted(p, ca)
		if err != nil {
			return nil, err
		}
		conf.ClientCAs = x509.NewCertPool()
		if !conf.ClientCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: no certificate in it", ca)
		}
		conf.ClientAuth = tls.VerifyClientCertIfGiven
	}
	return conf, nil
}

func (n *node) mounted(p *corev1.Pod, file string) ([]byte, error) {
	for _, m := range p.Spec.Containers[0].VolumeMounts {
		rel, ok := strings.CutPrefix(path.Clean(file), path.Clean(m.MountPath)+"/")
		if !ok {
			continue
		}
		for _, v := range p.Spec.Volumes {
			if v.Name != m.Name {
				continue
			}
			var items []corev1.KeyToPath
			data := map[string][]byte{}
			switch {
			case v.Secret != nil:
				s, err := n.secret.Secrets(p.Namespace).Get(v.Secret.SecretName)
				if err != nil {
					return nil, err
				}
				items, data = v.Secret.Items, s.Data
			case v.ConfigMap != nil:
				c, err := n.configMap.ConfigMaps(p.Namespace).Get(v.ConfigMap.Name)
				if err != nil {
					return nil, err
				}
				items = v.ConfigMap.Items
				for k, s := range c.Data {
					data[k] = []byte(s)
				}
			}
			entry := rel
			for _, i := range items {
				if i.Path == rel {
					entry = i.Key
				}
			}
			if d := data[entry]; d != nil {
				return d, nil
			}
		}
	}
	return nil, fmt.Errorf("nothing mounted at %s", file)
}
