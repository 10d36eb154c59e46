#!/bin/sh
# Send three half messages, commit the first, roll back the second. The proxy asks about the third.
# The transaction's id is the Kafka key, so prepare and commit share a partition. `timer-key` is the
# target's key.
bootstrap="${1:-localhost:9092}"
checks="orders.checks-$$"
prepare="timer-transaction:prepare,timer-topic:orders,timer-check-topic:$checks"

kafka-topics.sh --bootstrap-server "$bootstrap" --create --if-not-exists --topic "$checks"
{
  printf '%s,timer-id:t-1,timer-key:k1\tt-1\tpaid\n' "$prepare"
  printf '%s,timer-id:t-2,timer-key:k2\tt-2\tnot paid\n' "$prepare"
  printf '%s,timer-id:t-3,timer-key:k3,timer-check-immunity:5s\tt-3\twho knows\n' "$prepare"
  printf 'timer-transaction:commit,timer-id:t-1\tt-1\t\n'
  printf 'timer-transaction:rollback,timer-id:t-2\tt-2\t\n'
} | kafka-console-producer.sh --bootstrap-server "$bootstrap" --topic timer.ingress \
  --reader-property parse.headers=true --reader-property parse.key=true

# The third is undecided. After its immunity time the proxy sends a check-back ...
kafka-console-consumer.sh --bootstrap-server "$bootstrap" --topic "$checks" --from-beginning \
  --isolation-level read_committed --formatter-property print.headers=true --max-messages 1 \
  --timeout-ms 30000

# ... and this commit answers it.
printf 'timer-transaction:commit,timer-id:t-3\tt-3\t\n' |
  kafka-console-producer.sh --bootstrap-server "$bootstrap" --topic timer.ingress \
    --reader-property parse.headers=true --reader-property parse.key=true
