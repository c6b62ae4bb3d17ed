// Runs h2spec for a name that this machine's resolver does not have. Every name resolves to this
// machine.
//
// The edge selects a tunnel by its name, so the tool must connect with that name. h2spec itself
// cannot override the address of a name.
//
// Arguments: host, port, path, file of the report. The test certificate is not verified.
package main

import (
	"context"
	"encoding/binary"
	"io"
	"log"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/summerwind/h2spec"
	"github.com/summerwind/h2spec/config"
	"golang.org/x/net/dns/dnsmessage"
)

func main() {
	port, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: here}
	_, err = h2spec.Run(&config.Config{
		Host:        os.Args[1],
		Port:        port,
		Path:        os.Args[3],
		JUnitReport: os.Args[4],
		// A busy machine is slow. Only a case that fails waits this long.
		Timeout:      20 * time.Second,
		MaxHeaderLen: 4000,
		Strict:       true,
		TLS:          true,
		Insecure:     true,
		Sections:     os.Args[5:],
	})
	if err != nil {
		log.Fatal(err)
	}
}

// A name server at the other end of a pipe.
func here(context.Context, string, string) (net.Conn, error) {
	asking, answering := net.Pipe()
	go serve(answering)
	return asking, nil
}

// Answers queries on a stream, each with a length prefix (RFC 1035, 4.2.2).
func serve(stream net.Conn) {
	defer stream.Close()
	for {
		length := make([]byte, 2)
		if _, err := io.ReadFull(stream, length); err != nil {
			return
		}
		question := make([]byte, binary.BigEndian.Uint16(length))
		if _, err := io.ReadFull(stream, question); err != nil {
			return
		}
		var message dnsmessage.Message
		if err := message.Unpack(question); err != nil {
			return
		}
		message.Response = true
		message.Additionals = nil
		for _, asked := range message.Questions {
			if asked.Type == dnsmessage.TypeA {
				head := dnsmessage.ResourceHeader{Name: asked.Name, Class: asked.Class, TTL: 60}
				body := &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}}
				message.Answers = append(message.Answers, dnsmessage.Resource{Header: head, Body: body})
			}
		}
		answer, err := message.Pack()
		if err != nil {
			return
		}
		framed := binary.BigEndian.AppendUint16(nil, uint16(len(answer)))
		if _, err := stream.Write(append(framed, answer...)); err != nil {
			return
		}
	}
}
