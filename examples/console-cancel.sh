#!/bin/sh
# A record that is cancelled before it appears, and one that is replaced; kafka-console-producer.sh
# comes with Kafka. The Kafka key of all of them is the id, so that they meet in one partition; the
# key at the target stands in `timer-key`. See console-producer.sh for the form of a line.
bootstrap="${1:-localhost:9092}"

{
  printf 'timer-topic:orders,timer-delay:30s,timer-id:r-1,timer-key:k1\tr-1\tnever to be seen\n'
  printf 'timer-topic:orders,timer-delay:30s,timer-id:r-2,timer-key:k2\tr-2\tas it was\n'
  printf 'timer-cancel:r-1\tr-1\t\n'
  printf 'timer-topic:orders,timer-delay:10s,timer-id:r-2,timer-key:k2\tr-2\treplaced\n'
} | kafka-console-producer.sh --bootstrap-server "$bootstrap" --topic timer.ingress \
  --reader-property parse.headers=true --reader-property parse.key=true

# Whether the cancel came in time stands in timer.outcomes, under its own origin.
