const serialize = require('serialize-javascript');

// The state that a rendered page starts with.
exports.script = (state) => `<script>window.state = ${serialize(state)}</script>`;
