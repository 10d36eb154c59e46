#!/bin/sh
# Send three records that arrive in the topic `orders` later: by delay, by level, by time.
# kafka-console-producer.sh comes with Kafka. A line is: headers, tab, key, tab, value.
# Before Kafka 4.2 write --property instead of --reader-property.
bootstrap="${1:-localhost:9092}"

{
  printf 'timer-topic:orders,timer-delay:10s\tk1\thello after ten seconds\n'
  printf 'timer-topic:orders,timer-level:3\tk2\thello at delay level 3\n'
  printf 'timer-topic:orders,timer-deliver-at:%s000\tk3\thello in half a minute\n' \
    "$(($(date +%s) + 30))"
} | kafka-console-producer.sh --bootstrap-server "$bootstrap" --topic timer.ingress \
  --reader-property parse.headers=true --reader-property parse.key=true
