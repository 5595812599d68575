"use strict";

const { WebSocketServer, WebSocket } = require("ws");

exports.echo = () =>
  new Promise((resolve, reject) => {
    const server = new WebSocketServer({ host: "127.0.0.1", port: 0 }, () => {
      const client = new WebSocket(`ws://127.0.0.1:${server.address().port}`);
      client.on("error", reject);
      client.on("open", () => client.send("tea"));
      client.on("message", (told) => {
        client.close();
        server.close();
        resolve(String(told));
      });
    });
    server.on("connection", (socket) => socket.on("message", (told) => socket.send(told)));
  });
