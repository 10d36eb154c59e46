#!/bin/sh
# Half messages: stored, but undelivered until `commit`. The Kafka key of all is the transaction's
# id, so that they meet in one partition; the key at the target stands in `timer-key`.
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

# The third was not decided: after its immunity the proxy asks what became of it ...
kafka-console-consumer.sh --bootstrap-server "$bootstrap" --topic "$checks" --from-beginning \
  --isolation-level read_committed --formatter-property print.headers=true --max-messages 1 \
  --timeout-ms 30000

# ... and this is the answer.
printf 'timer-transaction:commit,timer-id:t-3\tt-3\t\n' |
  kafka-console-producer.sh --bootstrap-server "$bootstrap" --topic timer.ingress \
    --reader-property parse.headers=true --reader-property parse.key=true
