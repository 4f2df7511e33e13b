from tunnelgw.cli import main

if __name__ == "__main__":
    main()
