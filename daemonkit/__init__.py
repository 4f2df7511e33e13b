"""What every daemon of this distribution shares: options, logs, lifecycle, a WSGI server, the ops app.

lifecycle > systemd                     the life of a daemon, from its start to its exit code
interrupts · standardfiles · openfiles  signals before that; descriptors that are closed; how many may be open
options > optionsources · optionhelp    all options of a daemon; where a value comes from; `--help`
helpparser                              help that cannot be written is an error, of commands too
optionspec > values · secret            what one option is; parsers; texts that must not be shown
listening > addresses                   listening sockets, and how a person writes their addresses
logs > logformat · linesink             one line for each record, written without waiting for a reader
causes                                  the innermost of wrapped errors
wsgi > wsgiengine > wsgirequest         an HTTP server for WSGI apps, on cheroot's
wsgistreams · wsgitls > tlssocket       its streams with deadlines; its certificates; TLS a record at a time
wsgibody · httperrors                   for apps: a whole body, an error in our format
ops                                     the app behind `/healthz`, `/readyz` and `/metrics`
clienttls · unixhttp · timedresponse    for clients: whom to trust; unix sockets; a limit for a whole response
wholenames · addressfamilies            for clients: names without search domains; IPv6 wherever the host has it
retryafter · waits                      how long to wait
filereading · statefile · memoryfile    files that may be anything; written whole or not at all; without a name
memory                                  returned to the system, and rarely searched for garbage
ipv4 · hostnames · urls                 hosts that look like an address but are none; names too long for DNS; URLs
"""

__version__ = "0.1.0"
