"""Objects into verdicts and documents. Pure: equal input gives equal output, and no input makes it raise."""
