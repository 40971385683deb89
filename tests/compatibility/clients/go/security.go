package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// securityOptions reads the file that --security names: name=value, by librdkafka's names.
func securityOptions(path string) ([]kgo.Opt, error) {
	if path == "" {
		return nil, nil
	}
	given, err := readSettings(path)
	if err != nil {
		return nil, err
	}
	var found []kgo.Opt
	if strings.HasSuffix(given["security.protocol"], "SSL") {
		config, err := tlsConfig(given)
		if err != nil {
			return nil, err
		}
		found = append(found, kgo.DialTLSConfig(config))
	}
	if strings.HasPrefix(given["security.protocol"], "SASL") {
		found = append(found, kgo.SASL(mechanism(given)))
	}
	return found, nil
}

func readSettings(path string) (map[string]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	given := map[string]string{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), "=")
		given[name] = value
	}
	return given, nil
}

// tlsConfig trusts one authority alone; the client adds the host that it connects to.
func tlsConfig(given map[string]string) (*tls.Config, error) {
	authority, err := os.ReadFile(given["ssl.ca.location"])
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	if !config.RootCAs.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("no certificate in %s", given["ssl.ca.location"])
	}
	if path := given["ssl.certificate.location"]; path != "" {
		certificate, err := tls.LoadX509KeyPair(path, path)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	return config, nil
}

func mechanism(given map[string]string) sasl.Mechanism {
	user, password := given["sasl.username"], given["sasl.password"]
	switch given["sasl.mechanism"] {
	case "OAUTHBEARER":
		return oauth.Auth{Token: given["sasl.oauthbearer.token"]}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: user, Pass: password}.AsSha512Mechanism()
	}
	return plain.Auth{User: user, Pass: password}.AsMechanism()
}
