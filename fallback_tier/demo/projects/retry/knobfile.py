import ast


def parse_list(text):
    return list(ast.literal_eval('[' + text + ']'))


def parse_value(text):
    return eval(text.strip())


def parse_settings(text):
    settings = {}
    for line in text.splitlines():
        name, _, value = line.partition('=')
        settings[name.strip()] = parse_value(value)
    return settings
