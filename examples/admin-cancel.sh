#!/bin/sh
# Cancel a pending record by its id: show it, cancel it, and wait for the outcome of the cancel.
#
#   sh admin-cancel.sh order-17
#
# Another instance may serve the record's partition. Then give the record's ingress key, too:
#
#   sh admin-cancel.sh order-17 customer-5
#
# ADMIN: host:port of the proxy's admin port. TOKEN: the setting admin.token, if it is set.
# Ids and keys must have no quotes and no backslashes.
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
