#!/bin/sh
# Find a dead letter, show it, edit its headers and replay it. Start `make run` first, then:
#
#   sh examples/dead-letters.sh [broker]
#
# PROXY: the command, if it is not on the PATH.
set -eu
proxy=${PROXY:-kafka-delay-proxy}
bootstrap="${1:-localhost:9092}"

# An unknown header makes the record a dead letter.
"$proxy" send --bootstrap "$bootstrap" --topic orders --key k1 --value mended --header timer-dealy=2s
sleep 3

newest=$("$proxy" dead-letters list --bootstrap "$bootstrap" --reason header-unknown --limit 1 --json)
place=$(printf '%s' "$newest" | sed 's|.*"partition": \([0-9]*\), "offset": \([0-9]*\).*|\1/\2|')
"$proxy" dead-letters show --bootstrap "$bootstrap" "$place"

set -- "$place" --bootstrap "$bootstrap" --unset timer-dealy --set timer-delay=2s
"$proxy" dead-letters replay "$@" --dry-run
"$proxy" dead-letters replay "$@" --yes

# The list shows the replay. A second replay needs --again.
"$proxy" dead-letters list --bootstrap "$bootstrap" --reason header-unknown --limit 1
