// Loaded before anything of the target's in each node of a proof, and in its worker threads: records what ends the
// process, and what test runners rely on that is changed. Lines are JSON: [kind, text].
"use strict";
const assert = require("assert");
const fs = require("fs");
const Module = require("module");
const path = require("path");
const { Writable } = require("stream");
const { isMainThread } = require("worker_threads");

const { openSync, writeSync, closeSync, fstatSync, constants } = fs;
const { captureStackTrace } = Error;
const { stringify } = JSON;
const record = process.env.FALLBACK_TIER_WITNESS;

function put(kind, text) {
  try {
    const file = openSync(record, constants.O_WRONLY | constants.O_APPEND);
    writeSync(file, `${stringify([kind, text])}\n`);
    closeSync(file);
  } catch {
    // The record is gone, which its reader sees.
  }
}

// The innermost file of the project's own that led here; null: a package did, and no code of the project's.
function caller() {
  const { prepareStackTrace, stackTraceLimit } = Error;
  const holder = {};
  try {
    Error.prepareStackTrace = (_, frames) => frames.map((frame) => frame.getFileName() || "");
    Error.stackTraceLimit = 200;
    captureStackTrace(holder, caller);
    const files = holder.stack.filter((file) => file && !file.startsWith("node:") && file !== __filename);
    const own = files.find((file) => !file.includes("/node_modules/"));
    if (own) return path.relative(path.dirname(record), own.replace(/^file:\/\//, ""));
    return files.length ? null : "no file";
  } catch {
    return "code that hides where it is";
  } finally {
    Object.assign(Error, { prepareStackTrace, stackTraceLimit });
  }
}

// With numbers in place of big integers, node's realpath of the next file would take its folder for a pipe.
const stream = (descriptor) => {
  try {
    const { dev, ino } = fstatSync(descriptor, { bigint: true });
    return `${dev} ${ino}`;
  } catch {
    return "closed";
  }
};

const kept = [];
const keep = (name, holder, keys = Object.keys(holder)) => {
  for (const key of keys) {
    if (typeof holder[key] === "function") kept.push([`${name}.${key}`, holder, key, holder[key]]);
  }
};
const streams = [1, 2].map(stream);
const { write } = Writable.prototype;

function compare() {
  for (const [name, holder, key, value] of kept) {
    if (holder[key] !== value) put("changed", name);
  }
  if (isMainThread) {
    const others = [process.stdout, process.stderr].some((one) => one.write !== write);
    if (others || [1, 2].map(stream).join() !== streams.join()) put("changed", "the standard output");
  }
}

if (isMainThread) {
  // process.exit() calls it, and nothing else ends a process with exit code 0 before its time.
  for (const name of ["reallyExit", "execve"]) {
    const own = process[name];
    if (typeof own !== "function") continue;
    process[name] = function (...values) {
      compare();
      const file = caller();
      if (file !== null) put("ended", file);
      return own.apply(this, values);
    };
  }
}
keep("assert", assert);
keep("assert.strict", assert.strict);
keep("process", process, ["exit", "reallyExit", "execve", "abort", "kill", "emit", "on", "once"]);
keep("Module", Module, ["_load", "_resolveFilename"]);
keep("Module.prototype", Module.prototype, ["require", "_compile", "load"]);
keep("Module._extensions", Module._extensions);
process.on("exit", compare);
put("here", `${process.pid}`);
