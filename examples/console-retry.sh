#!/bin/sh
# Send back two records that a consumer of a group could not process.
# The first has no earlier failure (attempt 0). It arrives in retry.<group> after 10 s (level 3).
# The second has 16 earlier failures. It arrives in dlq.<group> at once.
# `retry-` headers are the consumer's own and stay unchanged, so the consumer can count in them.
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
