// A client by franz-go: writes records to a topic, reads them back, and says how it went.
//
// Prints "read N records of BYTES bytes, throttled M ms" and ends with 0, or prints the error
// and ends with 1.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

var (
	broker      = flag.String("broker", "", "HOST:PORT")
	authority   = flag.String("ca", "", "PEM of who signed the broker's certificate; empty: no TLS")
	certificate = flag.String("certificate", "", "PEM of the client's certificate")
	key         = flag.String("key", "", "PEM of its key")
	mechanism   = flag.String("mechanism", "", "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER")
	user        = flag.String("user", "", "who logs in")
	password    = flag.String("password", "", "and with what; a token for OAUTHBEARER")
	topic       = flag.String("topic", "", "written and read")
	count       = flag.Int("count", 2, "of records")
	size        = flag.Int("size", 5, "of each record, in bytes")
)

// throttles keeps the longest time that the broker asked this client to wait.
type throttles struct{ longest atomic.Int64 }

func (t *throttles) OnBrokerThrottle(_ kgo.BrokerMetadata, wait time.Duration, _ bool) {
	if wait.Milliseconds() > t.longest.Load() {
		t.longest.Store(wait.Milliseconds())
	}
}

func tlsConfig() (*tls.Config, error) {
	pem, err := os.ReadFile(*authority)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	if !config.RootCAs.AppendCertsFromPEM(pem) {
		return nil, errors.New("no certificate in " + *authority)
	}
	if *certificate != "" {
		pair, err := tls.LoadX509KeyPair(*certificate, *key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func mechanismOf(name string) (sasl.Mechanism, error) {
	switch name {
	case "PLAIN":
		return plain.Auth{User: *user, Pass: *password}.AsMechanism(), nil
	case "SCRAM-SHA-256":
		return scram.Auth{User: *user, Pass: *password}.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return scram.Auth{User: *user, Pass: *password}.AsSha512Mechanism(), nil
	case "OAUTHBEARER":
		return oauth.Auth{Token: *password}.AsMechanism(), nil
	}
	return nil, errors.New("unknown mechanism " + name)
}

func story() error {
	waits := &throttles{}
	options := []kgo.Opt{
		kgo.SeedBrokers(*broker),
		kgo.ClientID("franz"),
		kgo.WithHooks(waits),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ConsumeTopics(*topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	if *authority != "" {
		config, err := tlsConfig()
		if err != nil {
			return err
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	if *mechanism != "" {
		chosen, err := mechanismOf(*mechanism)
		if err != nil {
			return err
		}
		options = append(options, kgo.SASL(chosen))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := client.Ping(ctx); err != nil {
		return err
	}
	for range *count {
		record := &kgo.Record{Topic: *topic, Value: make([]byte, *size)}
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			return err
		}
	}
	records, bytes := 0, 0
	for records < *count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			records++
			bytes += len(record.Value)
		})
	}
	fmt.Printf("read %d records of %d bytes, throttled %d ms\n", records, bytes, waits.longest.Load())
	return nil
}

func main() {
	flag.Parse()
	if err := story(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
