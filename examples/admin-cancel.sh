#!/bin/sh
# Take back what waits with an id: show it, cancel it, and wait for what becomes of the cancel.
#
#   sh admin-cancel.sh order-17
#
# The cancel goes to where the proxy that is asked knows the id to wait. Where another instance
# serves that partition, name the record's key in the ingress:  sh admin-cancel.sh order-17 customer-5
#
# ADMIN: host:port of the proxy's admin port. TOKEN: admin.token, where one is set.
# Ids and keys here have no quotes and no backslashes.
set -eu
ADMIN=${ADMIN:-127.0.0.1:9464}
id=${1:?usage: $0 ID [KEY]}
key=${2:+, \"key\": \"$2\"}

api() {
  curl --silent --show-error --fail-with-body --max-time 40 \
    ${TOKEN:+--header "Authorization: Bearer $TOKEN"} "$@"
}

api --get --data-urlencode "id=$id" "http://$ADMIN/api/v1/records" || true
api --header 'Content-Type: application/json' --data "{\"id\": \"$id\"$key}" \
  "http://$ADMIN/api/v1/cancellations?wait=30s"
