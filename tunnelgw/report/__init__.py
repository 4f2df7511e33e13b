"""Reports to people: statuses with the results of deliveries, Events, and log lines about ingress documents."""
