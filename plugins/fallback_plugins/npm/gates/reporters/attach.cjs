// Loaded before anything else in each node of a test run (NODE_OPTIONS), whatever called it: a client's script, a
// wrapper, another node. If this process is a test runner's, it is made to report each test in a file of its own.
"use strict";
const { spawnSync } = require("child_process");
const fs = require("fs");
const Module = require("module");
const path = require("path");
const { isMainThread } = require("worker_threads");

const prefix = process.env.FALLBACK_TIER_REPORTS;
const place = `${prefix}-${process.pid}`;
let isTaken = !prefix || !isMainThread;

// The file is there from now on: a runner was asked. What this process starts is a part of it, or one of its tests.
function take() {
  isTaken = true;
  fs.appendFileSync(place, "");
  delete process.env.FALLBACK_TIER_REPORTS;
}

// The package whose program this process runs: its name, its folder.
function owner(file) {
  const plain = (name) => name.replace(/\.[cm]?js$/, "");
  for (let folder = path.dirname(file); folder !== path.dirname(folder); folder = path.dirname(folder)) {
    try {
      const { name, bin } = JSON.parse(fs.readFileSync(path.join(folder, "package.json"), "utf8"));
      if (!name) continue;
      const programs = typeof bin === "string" ? [bin] : Object.values(bin || {});
      const isProgram = programs.some((one) => plain(path.resolve(folder, one)) === plain(file));
      return isProgram ? { name, folder } : undefined;
    } catch {
      // No manifest, or none that can be read.
    }
  }
  return undefined;
}

const has = (pattern) => process.argv.slice(2).some((word) => pattern.test(word));
const append = (...words) => {
  const end = process.argv.indexOf("--");
  process.argv.splice(end < 0 ? process.argv.length : end, 0, ...words);
};

const RUNNERS = {
  jest() {
    if (has(/^--(json|outputFile)\b/)) return;
    take();
    append("--json", `--outputFile=${place}`, "--bail=0");
  },
  vitest() {
    if (has(/^--outputFile\b/) || has(/^(bench|list|init)$/)) return;
    take();
    const own = has(/^--reporter\b/) ? [] : ["--reporter=default"];
    append(...own, "--reporter=json", `--outputFile.json=${place}`, "--bail=0");
  },
  mocha(folder) {
    take();
    Object.assign(process.env, { FALLBACK_TIER_REPORT: place, FALLBACK_TIER_MOCHA: folder });
    append("--reporter", path.join(__dirname, "mocha.cjs"));
  },
};
RUNNERS["jest-cli"] = RUNNERS.jest;

// Lines of a report (fallback_plugins.shared.gates.reports).
function teller() {
  const seen = new Map();
  let told = 0;
  const put = (line) => fs.appendFileSync(place, `${JSON.stringify(line)}\n`);
  const folder = path.relative(path.dirname(place), process.cwd());
  return {
    tell(title, was) {
      const name = folder ? `${folder} > ${title}` : title;
      let times = (seen.get(name) || 0) + 1;
      let unique = times === 1 ? name : `${name} (${times})`;
      // Another may be called as this one is numbered.
      while (times > 1 && seen.has(unique)) unique = `${name} (${++times})`;
      seen.set(unique, 1);
      seen.set(name, times);
      told += 1;
      put({ test: unique, was });
    },
    end: (ran, failed) => put({ told, ran, failed }),
  };
}

// What jasmine's own reporter counts: failed specs, and errors of suites.
function jasmineReporter() {
  const { tell, end } = teller();
  let ran = 0;
  let failed = 0;
  return {
    specDone({ fullName, status }) {
      if (status === "passed" || status === "failed") ran += 1;
      if (status === "failed") failed += 1;
      if (status !== "excluded") tell(fullName, status === "pending" ? "skipped" : status);
    },
    suiteDone({ fullName, failedExpectations = [] }) {
      if (!failedExpectations.length) return;
      failed += 1;
      tell(`${fullName} (outside its tests)`, "failed");
    },
    jasmineDone({ failedExpectations = [] } = {}) {
      for (const { message } of failedExpectations) tell(`(outside any test) ${message}`, "failed");
      end(ran, failed + failedExpectations.length);
    },
  };
}

// Libraries by which a program of the project's own, or a wrapper, runs tests.
const LIBRARIES = {
  "jasmine-core"(core) {
    for (const name of ["boot", "noGlobals"]) {
      const own = core[name];
      if (typeof own !== "function") continue;
      core[name] = function (...values) {
        const made = own.apply(this, values);
        if (!isTaken) {
          take();
          (made.jasmine || made).getEnv().addReporter(jasmineReporter());
        }
        return made;
      };
    }
    return core;
  },
  "@jest/core"(core) {
    return new Proxy(core, {
      get(target, name) {
        if (name !== "runCLI" || isTaken) return target[name];
        return (options, ...others) => {
          if (options.json || options.outputFile) return target.runCLI(options, ...others);
          take();
          return target.runCLI({ ...options, json: true, outputFile: place, bail: 0 }, ...others);
        };
      },
    });
  },
};

// node's own runner takes its reporters from the command line alone: it is started again, with ours.
function nodeTest() {
  const given = (option) => process.execArgv.filter((word) => new RegExp(`^${option}(=|$)`).test(word)).length;
  const [reporters, destinations] = ["--test-reporter", "--test-reporter-destination"].map(given);
  if (/--test-reporter/.test(process.env.NODE_OPTIONS) || (reporters !== destinations && reporters !== 1)) return;
  take();
  const options = reporters ? [] : ["--test-reporter=tap"];
  if (reporters !== destinations || !reporters) options.push("--test-reporter-destination=stdout");
  options.push(`--test-reporter=${path.join(__dirname, "node.mjs")}`, `--test-reporter-destination=${place}`);
  const words = [...process.execArgv, ...options, ...process.argv.slice(1)];
  const { status, signal } = spawnSync(process.execPath, words, { stdio: "inherit" });
  if (signal) process.kill(process.pid, signal);
  process.exit(status === null ? 1 : status);
}

if (!isTaken) {
  const { _load } = Module;
  const changed = new Map();
  Module._load = function (request, ...others) {
    const loaded = _load.call(this, request, ...others);
    if (!Object.hasOwn(LIBRARIES, request)) return loaded;
    if (!changed.has(loaded)) changed.set(loaded, LIBRARIES[request](loaded));
    return changed.get(loaded);
  };
  if (process.execArgv.includes("--test") && !process.env.NODE_TEST_CONTEXT) {
    nodeTest();
  } else if (process.argv[1]) {
    try {
      const file = fs.realpathSync(process.argv[1]);
      const found = owner(file);
      if (found && Object.hasOwn(RUNNERS, found.name)) RUNNERS[found.name](found.folder);
    } catch {
      // No file is run.
    }
  }
}
