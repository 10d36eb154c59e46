#!/bin/sh
# Show pending records by target and by time, and undecided half messages.
#
# ADMIN: host:port of the proxy's admin port. TOKEN: the setting admin.token, if it is set.
set -eu
ADMIN=${ADMIN:-127.0.0.1:9464}

for page in pending 'pending/by-time?within=0s,1m,1h,1d' half-messages; do
  curl --silent --show-error --fail-with-body --max-time 10 \
    ${TOKEN:+--header "Authorization: Bearer $TOKEN"} "http://$ADMIN/api/v1/$page"
done
