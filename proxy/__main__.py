"""`python -m proxy` is the command `kafka-delay-proxy`."""

from proxy.cli import main

if __name__ == "__main__":
    main()
