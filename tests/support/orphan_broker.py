"""Program that starts a broker in a folder and waits until it is killed."""

import sys
import threading

from proxy.embedded import EmbeddedBroker


def main() -> None:
    with EmbeddedBroker(sys.argv[1]) as broker:
        print(broker.bootstrap_servers, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
