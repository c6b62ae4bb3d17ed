// lego, an ACME client of another project, orders a certificate by DNS-01 with updates of a name
// server (RFC 2136), and reads the authority's time of renewal (RFC 9773) for another certificate.
//
//	lego DIRECTORY CERTIFICATE NAME...
//
// LEGO_CA_CERTIFICATES is the authority of the directory, and the variables RFC2136_NAMESERVER,
// RFC2136_TSIG_KEY, RFC2136_TSIG_SECRET and RFC2136_TSIG_ALGORITHM are those of the name server, as
// in lego's documentation. CERTIFICATE is a file. The output is one JSON object with both
// certificates as a client sees them.
package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/go-acme/lego/v4/certcrypto"
	"github.com/go-acme/lego/v4/certificate"
	"github.com/go-acme/lego/v4/challenge/dns01"
	"github.com/go-acme/lego/v4/lego"
	"github.com/go-acme/lego/v4/providers/dns/rfc2136"
	"github.com/go-acme/lego/v4/registration"
)

// account is the account at the authority.
type account struct {
	key          crypto.PrivateKey
	registration *registration.Resource
}

func (a *account) GetEmail() string                        { return "" }
func (a *account) GetPrivateKey() crypto.PrivateKey        { return a.key }
func (a *account) GetRegistration() *registration.Resource { return a.registration }

// seen is what two certificates for the same names have in common.
type seen struct {
	Names     []string `json:"names"`
	KeyUsage  int      `json:"keyUsage"`
	Purposes  []string `json:"purposes"`
	Algorithm string   `json:"algorithm"`
	// Extensions are the identifiers of all extensions, in order.
	Extensions []string `json:"extensions"`
	// Days is the lifetime.
	Days int `json:"days"`
	// HasWindow is true if the authority suggests a time of renewal within the lifetime.
	HasWindow bool `json:"hasWindow"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) < 4 {
		return errors.New("usage: lego DIRECTORY CERTIFICATE NAME...")
	}
	client, err := register(os.Args[1])
	if err != nil {
		return err
	}
	ordered, err := client.Certificate.Obtain(certificate.ObtainRequest{Domains: os.Args[3:], Bundle: true})
	if err != nil {
		return err
	}
	other, err := os.ReadFile(os.Args[2])
	if err != nil {
		return err
	}
	own, err := look(client, ordered.Certificate)
	if err != nil {
		return err
	}
	given, err := look(client, other)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]*seen{"lego": own, "given": given})
}

// register makes an account, and uses the name server of the environment for challenges.
func register(directory string) (*lego.Client, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	user := &account{key: key}
	config := lego.NewConfig(user)
	config.CADirURL = directory
	config.Certificate.KeyType = certcrypto.EC256
	client, err := lego.NewClient(config)
	if err != nil {
		return nil, err
	}
	provider, err := rfc2136.NewDNSProvider()
	if err != nil {
		return nil, err
	}
	server := os.Getenv("RFC2136_NAMESERVER")
	err = client.Challenge.SetDNS01Provider(
		provider,
		dns01.AddRecursiveNameservers([]string{server}),
		// The authority asks the same server.
		dns01.PropagationWait(0, true),
	)
	if err != nil {
		return nil, err
	}
	user.registration, err = client.Registration.Register(registration.RegisterOptions{TermsOfServiceAgreed: true})
	return client, err
}

// look reads the first certificate of a chain, and the time of its renewal.
func look(client *lego.Client, chain []byte) (*seen, error) {
	block, _ := pem.Decode(chain)
	if block == nil {
		return nil, errors.New("no certificate")
	}
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, err
	}
	info, err := client.Certificate.GetRenewalInfo(certificate.RenewalInfoRequest{Cert: parsed})
	if err != nil {
		return nil, err
	}
	window := info.SuggestedWindow
	found := &seen{
		Names:     slices.Sorted(slices.Values(parsed.DNSNames)),
		KeyUsage:  int(parsed.KeyUsage),
		Algorithm: parsed.PublicKeyAlgorithm.String(),
		Days:      int(parsed.NotAfter.Sub(parsed.NotBefore).Hours()) / 24,
		HasWindow: window.Start.Before(window.End) && window.Start.After(parsed.NotBefore) && window.End.Before(parsed.NotAfter),
	}
	for _, purpose := range parsed.ExtKeyUsage {
		found.Purposes = append(found.Purposes, fmt.Sprint(int(purpose)))
	}
	for _, extension := range parsed.Extensions {
		found.Extensions = append(found.Extensions, extension.Id.String())
	}
	slices.Sort(found.Extensions)
	return found, nil
}
