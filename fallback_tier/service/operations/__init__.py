"""What the service does, whoever asks: routes and pages only translate. All of it is plain Python."""
