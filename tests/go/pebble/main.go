// Pebble, the test authority of Let's Encrypt, on listeners of port 0 that it reports. Its own
// program takes its ports from a file, so that they would have to be reserved.
//
// Arguments: a directory, and the ports of HTTP and TLS validations. It writes the authority of its
// directory (ca.pem) and the root of its certificates (root.pem) to the directory, and prints one
// line of JSON with its addresses. Every name resolves to this machine, except `nowhere.…`, unless
// PEBBLE_DNS_SERVER is the address of another name server, which is asked over TCP.
// PEBBLE_ALTERNATE_ROOTS is the number of alternative chains, and PEBBLE_CHAIN_LENGTH the number of
// intermediate certificates of each chain, as for its own program.
//
// The management address has Pebble's own routes, and adds and removes TXT records:
// `PUT /txt/NAME/VALUE`, `DELETE /txt/NAME/VALUE`. `POST /deactivate/ID` deactivates an account.
// `PUT /delegation/ADDRESS` delegates the names of challenges to a name server with this address,
// which has their TXT records from then on; `DELETE /delegation` ends this.
// `PUT /delegation/ADDRESS/ZONE/HOST` delegates a zone to the host, which is the name server with this
// address, and makes the names of challenges aliases of names in the zone.
// `PUT /validity/START/END` sets the validity of the certificates that are issued from then on, as
// times of RFC 3339.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/letsencrypt/pebble/v2/acme"
	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"
	"github.com/miekg/dns"
)

func main() {
	directory := os.Args[1]
	httpPort := number(os.Args[2])
	tlsPort := number(os.Args[3])
	logger := log.New(os.Stderr, "pebble ", log.LstdFlags)

	names := &records{values: map[string][]string{}}
	resolver := listen()
	go func() {
		log.Fatal((&dns.Server{Listener: resolver, Handler: names}).ActivateAndServe())
	}()

	store := db.NewMemoryStore()
	profiles := map[string]ca.Profile{"default": {Description: "the default profile"}}
	if setting("PEBBLE_SHORTLIVED", 0) != 0 {
		// Orders that name no profile then get a random one.
		profiles["shortlived"] = ca.Profile{Description: "six days", ValidityPeriod: 6 * 24 * 3600}
	}
	alternatives := setting("PEBBLE_ALTERNATE_ROOTS", 0)
	authority := ca.New(logger, store, "", "ecdsa", alternatives, setting("PEBBLE_CHAIN_LENGTH", 1), profiles)
	server := resolver.Addr().String()
	if other := os.Getenv("PEBBLE_DNS_SERVER"); other != "" {
		server = other
	}
	validator := va.New(logger, httpPort, tlsPort, true, server, store)
	if key := os.Getenv("PEBBLE_EXTERNAL_ACCOUNT_KEY"); key != "" {
		check(store.AddExternalAccountKeyByID("test", key))
	}
	isBound := os.Getenv("PEBBLE_EXTERNAL_ACCOUNT_KEY") != ""
	identities := []string{"pebble.letsencrypt.org"}
	front := wfe.New(logger, store, validator, authority, identities, true, isBound, 1, 1)

	certificate, pool := serverCertificate()
	write(directory, "ca.pem", pool)
	write(directory, "root.pem", authority.GetRootCert(0).PEM())

	frontListener := listen()
	management := listen()
	routes := http.NewServeMux()
	routes.HandleFunc("PUT /txt/{name}/{value}", names.add)
	routes.HandleFunc("DELETE /txt/{name}/{value}", names.remove)
	routes.HandleFunc("PUT /delegation/{server}", names.delegate)
	routes.HandleFunc("PUT /delegation/{server}/{zone}/{host}", names.delegate)
	routes.HandleFunc("DELETE /delegation", names.delegate)
	issued := &validity{store: store, next: front.Handler()}
	routes.HandleFunc("PUT /validity/{start}/{end}", issued.set)
	routes.HandleFunc("POST /deactivate/{id}", func(response http.ResponseWriter, request *http.Request) {
		deactivate(store, request.PathValue("id"), response)
	})
	routes.Handle("/", front.ManagementHandler())
	go func() { log.Fatal(http.Serve(management, routes)) }()

	line, err := json.Marshal(map[string]string{
		"directory":  fmt.Sprintf("https://%s%s", frontListener.Addr(), wfe.DirectoryPath),
		"management": fmt.Sprintf("http://%s", management.Addr()),
		"resolver":   resolver.Addr().String(),
	})
	check(err)
	fmt.Println(string(line))
	config := &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"http/1.1"}}
	log.Fatal(http.Serve(tls.NewListener(frontListener, config), issued))
}

// As an administrator of the authority does.
func deactivate(store *db.MemoryStore, id string, response http.ResponseWriter) {
	account := store.GetAccountByID(id)
	if account == nil {
		response.WriteHeader(http.StatusNotFound)
		return
	}
	changed := *account
	changed.Status = acme.StatusDeactivated
	check(store.UpdateAccountByID(id, &changed))
}

// The routes of the authority, with a validity for certificates that differs from the usual one.
type validity struct {
	store *db.MemoryStore
	next  http.Handler

	lock       sync.Mutex
	start, end string
}

func (v *validity) set(response http.ResponseWriter, request *http.Request) {
	v.lock.Lock()
	defer v.lock.Unlock()
	v.start, v.end = request.PathValue("start"), request.PathValue("end")
}

func (v *validity) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	id, isEnd := strings.CutPrefix(request.URL.Path, "/finalize-order/")
	if isEnd {
		v.change(id)
	}
	v.next.ServeHTTP(response, request)
}

// The authority issues for the times of the order, which clients may request.
func (v *validity) change(id string) {
	v.lock.Lock()
	defer v.lock.Unlock()
	order := v.store.GetOrderByID(id)
	if order == nil || v.start == "" {
		return
	}
	order.Lock()
	defer order.Unlock()
	order.NotBefore, order.NotAfter = v.start, v.end
}

// The records of a name server in which every name is this machine.
type records struct {
	lock   sync.Mutex
	values map[string][]string
	delegation
}

// The name server of challenges, if it is not this one.
type delegation struct {
	server string
	// The zone of which challenges are aliases, and the name of its server.
	zone, host string
}

func (r *records) add(response http.ResponseWriter, request *http.Request) {
	r.lock.Lock()
	defer r.lock.Unlock()
	name := key(request.PathValue("name"))
	r.values[name] = append(r.values[name], request.PathValue("value"))
}

func (r *records) remove(response http.ResponseWriter, request *http.Request) {
	r.lock.Lock()
	defer r.lock.Unlock()
	name, value := key(request.PathValue("name")), request.PathValue("value")
	r.values[name] = slices.DeleteFunc(r.values[name], func(found string) bool { return found == value })
}

// Without a server in the path the names are delegated no longer.
func (r *records) delegate(response http.ResponseWriter, request *http.Request) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.delegation = delegation{request.PathValue("server"), request.PathValue("zone"), request.PathValue("host")}
}

func (r *records) ServeDNS(writer dns.ResponseWriter, question *dns.Msg) {
	answer := new(dns.Msg)
	answer.SetReply(question)
	r.lock.Lock()
	to := r.delegation
	r.lock.Unlock()
	for _, asked := range question.Question {
		head := dns.RR_Header{Name: asked.Name, Rrtype: asked.Qtype, Class: dns.ClassINET}
		host, isChallenge := strings.CutPrefix(key(asked.Name), "_acme-challenge.")
		if isChallenge && to.zone != "" && asked.Qtype != dns.TypeA {
			head.Rrtype = dns.TypeCNAME
			alias := host + key(to.zone)
			answer.Answer = append(answer.Answer, &dns.CNAME{Hdr: head, Target: alias})
			if asked.Qtype == dns.TypeTXT {
				to.ask(alias, answer)
			}
			continue
		}
		switch asked.Qtype {
		case dns.TypeA:
			if strings.HasPrefix(key(asked.Name), "nowhere.") {
				continue
			}
			answer.Answer = append(answer.Answer, &dns.A{Hdr: head, A: net.IPv4(127, 0, 0, 1)})
		case dns.TypeNS:
			if to.zone != "" && key(asked.Name) == key(to.zone) {
				answer.Answer = append(answer.Answer, &dns.NS{Hdr: head, Ns: key(to.host)})
			}
			if isChallenge && to.server != "" {
				host = strings.TrimPrefix(host, "t.")
				answer.Answer = append(answer.Answer, &dns.NS{Hdr: head, Ns: host})
			}
		case dns.TypeTXT:
			if to.server != "" {
				to.ask(asked.Name, answer)
				break
			}
			r.lock.Lock()
			for _, value := range r.values[key(asked.Name)] {
				answer.Answer = append(answer.Answer, &dns.TXT{Hdr: head, Txt: []string{value}})
			}
			r.lock.Unlock()
		}
	}
	check(writer.WriteMsg(answer))
}

// Adds the texts that the other name server has.
func (d delegation) ask(name string, answer *dns.Msg) {
	question := new(dns.Msg)
	question.SetQuestion(name, dns.TypeTXT)
	reply, _, err := (&dns.Client{Net: "tcp"}).Exchange(question, d.server)
	if err != nil {
		answer.Rcode = dns.RcodeServerFailure
		return
	}
	answer.Answer = append(answer.Answer, reply.Answer...)
}

func key(name string) string {
	return strings.ToLower(dns.Fqdn(name))
}

// A certificate for 127.0.0.1, and the PEM of its authority.
func serverCertificate() (tls.Certificate, []byte) {
	rootKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	root := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "the directory's authority"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	rootDER, err := x509.CreateCertificate(rand.Reader, root, root, &rootKey.PublicKey, rootKey)
	check(err)
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: "pebble"},
		NotBefore:    root.NotBefore,
		NotAfter:     root.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, root, &leafKey.PublicKey, rootKey)
	check(err)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: rootDER})
	return tls.Certificate{Certificate: [][]byte{leafDER}, PrivateKey: leafKey}, authority
}

func listen() net.Listener {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	return listener
}

// The number in an environment variable, or the usual one.
func setting(name string, usual int) int {
	if text := os.Getenv(name); text != "" {
		return number(text)
	}
	return usual
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	check(err)
	return value
}

func write(directory, name string, content []byte) {
	check(os.WriteFile(filepath.Join(directory, name), content, 0o600))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
