"""A page with a greeting."""

import flask

app = flask.Flask(__name__)

PAGE = "Hello, {{ name }}!"


@app.route("/hello/<name>")
def hello(name):
    """Greet somebody."""
    return flask.render_template_string(PAGE, name=name)
