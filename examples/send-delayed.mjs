// Send a record that arrives in the topic `orders` ten seconds from now.
import { Kafka } from "kafkajs";

const bootstrap = process.argv[2] ?? "localhost:9092";
const producer = new Kafka({ brokers: [bootstrap] }).producer();
await producer.connect();
await producer.send({
  topic: "timer.ingress",
  messages: [
    {
      key: "k1",
      value: "hello from Node.js",
      headers: { "timer-topic": "orders", "timer-delay": "10s" },
    },
  ],
});
await producer.disconnect();
