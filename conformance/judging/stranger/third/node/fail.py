"""A call that ends with a status."""


class Fail(Exception):
    def __init__(self, code, text):
        super().__init__(text)
        self.code, self.text = code, text
