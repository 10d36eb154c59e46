#!/bin/sh
# What a consumer of the group G writes when it cannot handle a record: the proxy brings it to
# retry.G, after 10 s (level 3) because it had not failed before (attempt 0), after 30 s had it
# failed once, and so on; from attempt 16 on to dlq.G, at once.
# `retry-` headers are the consumer's own: they travel unchanged, so that it can count on.
bootstrap="${1:-localhost:9092}"
group="billing-$$"

for topic in "retry.$group" "dlq.$group"; do
  kafka-topics.sh --bootstrap-server "$bootstrap" --create --if-not-exists --topic "$topic"
done
{
  printf 'timer-retry-group:%s,timer-attempt:0,retry-attempt:1\tk1\tafter ten seconds\n' "$group"
  printf 'timer-retry-group:%s,timer-attempt:16,retry-attempt:17\tk2\thopeless\n' "$group"
} | kafka-console-producer.sh --bootstrap-server "$bootstrap" --topic timer.ingress \
  --reader-property parse.headers=true --reader-property parse.key=true

# Both arrive here:
kafka-console-consumer.sh --bootstrap-server "$bootstrap" --include ".*\.$group" --from-beginning \
  --isolation-level read_committed --formatter-property print.headers=true --max-messages 2 \
  --timeout-ms 30000
