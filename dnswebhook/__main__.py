from dnswebhook.cli import main

if __name__ == "__main__":
    main()
