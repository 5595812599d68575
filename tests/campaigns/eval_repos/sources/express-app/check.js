"use strict";

const assert = require("assert");
const http = require("http");

const app = require("./app.js");

const server = http.createServer(app).listen(0, "127.0.0.1", () => {
  const path = "/search?q=tea&tag[]=green&tag[]=black";
  http.get({ host: "127.0.0.1", port: server.address().port, path }, (response) => {
    let body = "";
    response.on("data", (part) => (body += part));
    response.on("end", () => {
      server.close();
      assert.strictEqual(response.statusCode, 200);
      assert.deepStrictEqual(JSON.parse(body), { asked: "tea", tags: ["green", "black"] });
    });
  });
});
