#!/bin/sh
# Send a record that arrives in the topic `orders` ten seconds from now.
bootstrap="${1:-localhost:9092}"

printf 'k1:hello from kcat\n' |
  kcat -P -b "$bootstrap" -t timer.ingress -K : -H timer-topic=orders -H timer-delay=10s
