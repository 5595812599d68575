"""The bodies of the requests in a stream of bytes."""

import h11


def bodies(stream):
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(stream)
    body = b""
    while True:
        event = connection.next_event()
        if type(event) is h11.Data:
            body += bytes(event.data)
        if event is h11.NEED_DATA or type(event) is h11.EndOfMessage:
            return body
