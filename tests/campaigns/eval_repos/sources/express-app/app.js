"use strict";

const express = require("express");

const app = express();

app.get("/search", (request, response) => {
  response.json({ asked: request.query.q, tags: request.query.tag });
});

module.exports = app;
