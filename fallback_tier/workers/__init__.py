"""What those who run fixes as processes share: a checkout a fix, a lock a worker, why it gave up."""
