// Send a record that arrives in the topic `orders` ten seconds from now.
package main

import (
	"context"
	"log"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	bootstrap := "localhost:9092"
	if len(os.Args) > 1 {
		bootstrap = os.Args[1]
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	record := &kgo.Record{
		Topic: "timer.ingress",
		Key:   []byte("k1"),
		Value: []byte("hello from Go"),
		Headers: []kgo.RecordHeader{
			{Key: "timer-topic", Value: []byte("orders")},
			{Key: "timer-delay", Value: []byte("10s")},
		},
	}
	if err := client.ProduceSync(context.Background(), record).FirstErr(); err != nil {
		log.Fatal(err)
	}
}
