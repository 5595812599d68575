"""Parts for running fixes as processes: a checkout per fix, a lock per worker, reasons why it gave up."""
