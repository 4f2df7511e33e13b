"""What people are told: statuses with what became of deliveries, Events, and log lines about ingress documents."""
