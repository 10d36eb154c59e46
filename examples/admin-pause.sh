#!/bin/sh
# Pause the delivery to some targets, or resume it. Other targets do not wait.
#
#   sh admin-pause.sh pause 'orders-*'
#   sh admin-pause.sh resume 'orders-*'
#   sh admin-pause.sh list
#
# ADMIN: host:port of a proxy's admin port (any of them). TOKEN: the setting admin.token, if it is set.
set -eu
ADMIN=${ADMIN:-127.0.0.1:9464}

api() {
  curl --silent --show-error --fail-with-body --globoff --max-time 40 \
    ${TOKEN:+--header "Authorization: Bearer $TOKEN"} "$@"
}

case "${1:-}" in
  pause) api --request PUT "http://$ADMIN/api/v1/pauses/$2" && echo "paused $2" ;;
  resume) api --request DELETE "http://$ADMIN/api/v1/pauses/$2" && echo "resumed $2" ;;
  list) api "http://$ADMIN/api/v1/pauses" ;;
  *) echo "usage: $0 pause|resume PATTERN, or $0 list" >&2; exit 2 ;;
esac
