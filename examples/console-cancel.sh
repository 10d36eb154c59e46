#!/bin/sh
# Send two records for later, cancel the first and replace the second.
# kafka-console-producer.sh comes with Kafka. console-producer.sh explains the form of a line.
# The id is the Kafka key of all lines, so they share a partition. `timer-key` is the target's key.
bootstrap="${1:-localhost:9092}"

{
  printf 'timer-topic:orders,timer-delay:30s,timer-id:r-1,timer-key:k1\tr-1\tnever to be seen\n'
  printf 'timer-topic:orders,timer-delay:30s,timer-id:r-2,timer-key:k2\tr-2\tas it was\n'
  printf 'timer-cancel:r-1\tr-1\t\n'
  printf 'timer-topic:orders,timer-delay:10s,timer-id:r-2,timer-key:k2\tr-2\treplaced\n'
} | kafka-console-producer.sh --bootstrap-server "$bootstrap" --topic timer.ingress \
  --reader-property parse.headers=true --reader-property parse.key=true

# The outcome of the cancel is in timer.outcomes, under its own origin: applied or missed.
