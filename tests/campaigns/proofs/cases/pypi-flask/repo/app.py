"""A page behind a cache, for users who stay logged in."""

import flask

app = flask.Flask(__name__)
app.secret_key = "of the test"


@app.get("/in")
def log_in():
    flask.session.permanent = True
    flask.session["user"] = "ada"
    return "in"


@app.get("/news")
def news():
    return "news"
