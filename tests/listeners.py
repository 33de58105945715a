"""Who follows how the work goes, and remembers it."""


class Heard:
    def __init__(self):
        self.progress, self.lines = [], []  # by a unit's name
        self.cuts, self.ends = [], []  # by its seeds
        self.stored, self.failed = [], []  # the names of units; units and their reasons
        self.remarks, self.staff = [], []  # lines; workers and nodes

    def advanced(self, unit, progress):
        self.progress.append((unit.name, progress))

    def message(self, unit, line):
        self.lines.append((unit.name, line))

    def cut(self, unit, line):
        self.cuts.append((unit.seeds, line))

    def remark(self, line):
        self.remarks.append(line)

    def staffed(self, workers, nodes):
        self.staff.append((workers, nodes))

    def ended(self, unit, failure):
        self.ends.append((unit.seeds, failure))
        if failure is None:
            self.stored.append(unit.name)
        else:
            self.failed.append((unit, failure))
