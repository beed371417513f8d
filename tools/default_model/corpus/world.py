"""Facts about the world that the corpus uses: tables only.

Each fact appears in many documents and wordings (see ``asking``), so that a model of two million
parameters can hold it. Plain, undisputed facts only.
"""

# ruff: noqa: SIM905 - a list of words reads best as a line of words.
from __future__ import annotations

COUNTRIES = tuple(
    tuple(row.split(","))
    for row in """France,Paris,Europe,French
Germany,Berlin,Europe,German
Italy,Rome,Europe,Italian
Spain,Madrid,Europe,Spanish
Portugal,Lisbon,Europe,Portuguese
England,London,Europe,English
Ireland,Dublin,Europe,English
Norway,Oslo,Europe,Norwegian
Sweden,Stockholm,Europe,Swedish
Finland,Helsinki,Europe,Finnish
Denmark,Copenhagen,Europe,Danish
Poland,Warsaw,Europe,Polish
Austria,Vienna,Europe,German
Switzerland,Bern,Europe,German
Belgium,Brussels,Europe,Dutch
the Netherlands,Amsterdam,Europe,Dutch
Greece,Athens,Europe,Greek
Hungary,Budapest,Europe,Hungarian
Romania,Bucharest,Europe,Romanian
Bulgaria,Sofia,Europe,Bulgarian
Ukraine,Kyiv,Europe,Ukrainian
Russia,Moscow,Europe,Russian
Turkey,Ankara,Asia,Turkish
Iceland,Reykjavik,Europe,Icelandic
Japan,Tokyo,Asia,Japanese
China,Beijing,Asia,Chinese
India,New Delhi,Asia,Hindi
Thailand,Bangkok,Asia,Thai
Vietnam,Hanoi,Asia,Vietnamese
South Korea,Seoul,Asia,Korean
Indonesia,Jakarta,Asia,Indonesian
Iran,Tehran,Asia,Persian
Iraq,Baghdad,Asia,Arabic
Egypt,Cairo,Africa,Arabic
Kenya,Nairobi,Africa,Swahili
Nigeria,Abuja,Africa,English
Morocco,Rabat,Africa,Arabic
Ghana,Accra,Africa,English
Canada,Ottawa,North America,English
Mexico,Mexico City,North America,Spanish
Cuba,Havana,North America,Spanish
the United States,Washington,North America,English
Brazil,Brasilia,South America,Portuguese
Argentina,Buenos Aires,South America,Spanish
Chile,Santiago,South America,Spanish
Peru,Lima,South America,Spanish
Colombia,Bogota,South America,Spanish
Australia,Canberra,Oceania,English
New Zealand,Wellington,Oceania,English""".split("\n")
)
"""Country, capital, continent, a language that is widely spoken there."""

CREATURES = tuple(
    tuple(row.split(";"))
    for row in """cat;in houses and on farms;fish and meat;says meow;kitten;4
dog;with people;meat and bones;barks;puppy;4
cow;on farms;grass;says moo;calf;4
horse;in fields and stables;grass and hay;neighs;foal;4
sheep;in meadows;grass;says baa;lamb;4
pig;on farms;roots and vegetables;grunts;piglet;4
hen;on farms;seeds and corn;clucks;chick;2
duck;on ponds and lakes;water plants and bread;quacks;duckling;2
fox;in the forest;mice and berries;barks softly;cub;4
wolf;in the forest;meat;howls;pup;4
bear;in the forest;fish, honey and berries;growls;cub;4
rabbit;in burrows under the ground;grass and carrots;is very quiet;kit;4
mouse;in holes and barns;seeds and cheese;squeaks;pup;4
owl;in old trees;mice;hoots at night;owlet;2
frog;in ponds;flies;croaks;tadpole;4
lion;in Africa;meat;roars;cub;4
elephant;in Africa and Asia;leaves and grass;trumpets;calf;4
tiger;in Asia;meat;roars;cub;4
monkey;in the trees of warm forests;fruit and nuts;chatters;infant;4
penguin;on cold coasts in the south;fish;calls loudly;chick;2
whale;in the ocean;fish and tiny sea animals;sings;calf;no
bee;in a hive;nectar from flowers;buzzes;larva;6
spider;in a web;insects;is silent;spiderling;8
snake;in grass and among stones;mice and frogs;hisses;hatchling;no
squirrel;in trees;nuts and seeds;chatters;kit;4
goat;on hills and mountains;grass and leaves;bleats;kid;4
camel;in the desert;dry plants;grunts;calf;4
giraffe;in Africa;leaves from tall trees;hums quietly;calf;4
zebra;in Africa;grass;barks;foal;4""".split("\n")
)
"""Animal, where it lives, what it eats, the sound, the young, the number of legs."""

DEFINITIONS: dict[str, str] = {
    "the sun": "The sun is a star. It gives light and heat to the earth. Without the sun, there "
    "would be no life on our planet.",
    "the moon": "The moon goes around the earth. It takes about a month. At night it shines "
    "because it reflects the light of the sun.",
    "the earth": "The earth is the planet on which we live. It goes around the sun once a year, "
    "and most of it is covered with water.",
    "a star": "A star is a huge ball of hot gas that shines. The sun is the star that is closest "
    "to us.",
    "a planet": "A planet is a large round body that goes around a star. The earth is a planet, "
    "and so are Mars and Jupiter.",
    "rain": "Rain is water that falls from the clouds in drops. Plants need rain to grow.",
    "snow": "Snow is frozen water that falls from the clouds in soft white flakes. It falls when "
    "the air is cold.",
    "ice": "Ice is frozen water. Water turns to ice at zero degrees.",
    "wind": "Wind is air that moves. It can turn a windmill and push a sailing boat.",
    "a cloud": "A cloud is made of many tiny drops of water that float in the sky. When the drops "
    "grow heavy, it rains.",
    "a rainbow": "A rainbow is a bow of colours in the sky. You can see it when the sun shines "
    "through the rain.",
    "a river": "A river is a stream of water that flows through the land to a lake or to the sea.",
    "the ocean": "The ocean is the great body of salt water that covers most of the earth. Fish "
    "and whales live in it.",
    "a mountain": "A mountain is very high land. On top of a high mountain there is snow even in "
    "summer.",
    "an island": "An island is land with water all around it.",
    "a desert": "A desert is a dry place where it hardly ever rains. Few plants can live there.",
    "a forest": "A forest is a large area with many trees. Foxes, owls and deer live in it.",
    "a tree": "A tree is a tall plant with a trunk, branches and leaves. Trees give us wood, fruit "
    "and fresh air.",
    "a flower": "A flower is the colourful part of a plant. Bees visit flowers to collect nectar.",
    "a seed": "A seed is the small beginning of a plant. With water, soil and light it grows.",
    "a book": "A book is made of many pages with words and pictures. People read books to learn "
    "and to enjoy stories.",
    "a library": "A library is a place where people can read and borrow books.",
    "a school": "A school is a place where children learn to read, to write and to count.",
    "a clock": "A clock is a machine that shows the time. Its hands point to the hours and the "
    "minutes.",
    "a map": "A map is a drawing of a place, seen from above. It shows roads, rivers and towns.",
    "a compass": "A compass is a tool that shows where north is. Sailors use it to find their way.",
    "a bridge": "A bridge is a road over water or over a valley. It joins the two sides.",
    "a lighthouse": "A lighthouse is a tall tower with a bright light at the top. It shows ships "
    "the way at night.",
    "music": "Music is sound that is made with voices and instruments, such as the piano or the "
    "drum. It can make people feel happy or calm.",
    "a friend": "A friend is someone who likes you, helps you and is happy to spend time with you.",
    "love": "Love is a strong and warm feeling for someone. You show it by being kind.",
    "time": "Time is what a clock measures. A day has 24 hours, an hour has 60 minutes, and a "
    "minute has 60 seconds.",
    "water": "Water is a clear liquid that has no taste. All living things need it.",
    "air": "Air is all around us. We cannot see it, but we breathe it all the time.",
    "fire": "Fire is hot and bright. It gives light and heat, but one must be careful with it.",
    "gold": "Gold is a yellow metal that does not rust. It is used for rings and coins.",
    "bread": "Bread is a food that is baked from flour, water, salt and yeast.",
    "honey": "Honey is a sweet food that bees make from the nectar of flowers.",
    "milk": "Milk is a white drink that comes from cows and goats. Cheese is made from it.",
    "a doctor": "A doctor is a person who helps people when they are ill.",
    "a teacher": "A teacher is a person who helps others to learn.",
    "a farmer": "A farmer is a person who grows plants and keeps animals for food.",
    "a sailor": "A sailor is a person who works on a ship.",
    "gravity": "Gravity is the force that pulls things down to the ground. It also keeps the moon "
    "near the earth.",
    "electricity": "Electricity is a kind of energy. It makes lamps shine and computers work.",
    "science": "Science is the careful study of the world. Scientists ask questions, make "
    "experiments and write down what they see.",
    "mathematics": "Mathematics is the study of numbers and shapes. We use it to count and to "
    "measure.",
    "history": "History is the story of what people did in the past.",
    "a computer": "A computer is a machine that follows instructions. It can store data, add "
    "numbers and talk to other computers.",
    "a program": "A program is a list of instructions for a computer.",
    "the internet": "The internet is a network that connects computers all over the world.",
    "a network": "A network is a group of things that are connected. In a network of computers, "
    "the nodes send messages to each other.",
    "a node": "A node is one computer in a network. It talks to other nodes, holds some layers of "
    "the model and answers requests.",
    "a mesh": "A mesh is a network in which every node can talk to many other nodes, so that it "
    "still works when one of them stops.",
    "a peer": "A peer is another node in the network. Peers help each other to find layers and to "
    "share work.",
    "a tracker": "A tracker is a node with a known address. New nodes ask it where the other "
    "nodes are.",
    "a token": "A token is a small piece of text, such as a word or a part of a word. A model "
    "reads and writes one token after another.",
    "a layer": "A layer is one step in a model. Each layer takes numbers from the layer before it "
    "and passes new numbers on.",
    "a language model": "A language model is a program that reads text and guesses which word "
    "comes next. It learns this from many examples.",
    "a model": "A model is a program that learned from examples. A language model guesses the next "
    "word of a text.",
    "training": "Training is how a model learns. It reads many examples, and each time it changes "
    "its weights a little so that its guess gets better.",
    "a gradient": "A gradient says in which direction each weight should change so that the loss "
    "becomes smaller.",
    "a prompt": "A prompt is the text that you give to a model. The model goes on from there.",
    "a server": "A server is a computer that waits for requests and answers them.",
    "an API": "An API is a set of rules by which one program can ask another one to do something.",
    "a port": "A port is a number that says which program on a computer a message is for. A node "
    "listens on port 8000 for HTTP and on port 9000 for gRPC.",
    "artificial intelligence": "Artificial intelligence is the art of making computers do things "
    "that seem to need thought, such as writing text or playing games.",
    "a robot": "A robot is a machine that can move and do work by itself.",
    "a dragon": "A dragon is a big animal in old stories. It has wings and breathes fire, but it "
    "is not real.",
    "a house": "A house is a building where people live. It has walls, a roof, doors and windows.",
    "a car": "A car is a machine with four wheels and a motor. It carries people along the road.",
    "a train": "A train is a row of wagons that an engine pulls along rails.",
    "a ship": "A ship is a large boat that carries people and goods across the sea.",
    "a bicycle": "A bicycle has two wheels, two pedals and a seat. You ride it with your own "
    "strength.",
    "happiness": "Happiness is the good feeling that you have when things are well. It often grows "
    "when you share it.",
    "a dream": "A dream is a story that you see in your sleep.",
    "money": "Money is what people use to pay for things. It can be coins, paper or numbers in a "
    "computer.",
    "a city": "A city is a large place where many people live and work close together.",
}

GENERAL: tuple[tuple[str, str], ...] = tuple(
    (q, answer)
    for q, answer in (
        row.split(" = ")
        for row in """how many days are there in a week = There are seven days in a week.
how many days does a week have = A week has seven days.
how many months are there in a year = There are twelve months in a year.
how many days are there in a year = There are 365 days in a year.
how many hours are there in a day = There are 24 hours in a day.
how many minutes are there in an hour = There are 60 minutes in an hour.
how many seconds are there in a minute = There are 60 seconds in a minute.
how many planets are there = There are eight planets that go around the sun.
how many seasons are there = There are four seasons: spring, summer, autumn and winter.
how many legs does a spider have = A spider has eight legs.
how many letters are in the alphabet = The English alphabet has 26 letters.
how many continents are there = There are seven continents.
what are the seasons = The seasons are spring, summer, autumn and winter.
what are the primary colours = The primary colours are red, yellow and blue.
what are the days of the week = The days of the week are Monday, Tuesday, Wednesday, Thursday, \
Friday, Saturday and Sunday.
what is the largest planet = Jupiter is the largest planet.
which planet is the largest = Jupiter is the largest planet.
which planet is closest to the sun = Mercury is the planet that is closest to the sun.
which planet is red = Mars is called the red planet.
which planet has rings = Saturn is known for its rings.
what is the largest ocean = The Pacific is the largest ocean.
what is the largest animal = The blue whale is the largest animal.
what is the tallest animal = The giraffe is the tallest animal.
what is the fastest animal = The cheetah is the fastest animal on land.
what is the longest river = The Nile is one of the longest rivers in the world.
what is the highest mountain = Mount Everest is the highest mountain.
what colour is the sky = The sky is blue on a clear day.
what colour is grass = Grass is green.
what colour is snow = Snow is white.
what colour is a banana = A ripe banana is yellow.
what colour is the sun = The sun looks yellow from the earth.
what colour is blood = Blood is red.
what colour is the night sky = The night sky is black and full of stars.
why is the sky blue = The sky is blue because the air scatters blue light more than red light.
why is grass green = Grass is green because its leaves use green stuff to catch the light.
why do leaves fall in autumn = Leaves fall in autumn because the tree saves its water for winter.
why does it rain = It rains because the drops in the clouds grow heavy and fall down.
why do we sleep = We sleep so that the body and the mind can rest.
why do birds fly south = Birds fly south in autumn because it is warm there and they find food.
why is the sea salty = The sea is salty because rivers carry salt from the rocks into it.
why do cats purr = Cats purr when they feel safe and happy.
why is the sun hot = The sun is hot because it is a star that makes heat deep inside.
where does the sun rise = The sun rises in the east.
where does the sun set = The sun sets in the west.
where do fish live = Fish live in water.
where does milk come from = Milk comes from cows and goats.
where does honey come from = Honey comes from bees.
what do bees make = Bees make honey.
what do plants need = Plants need water, light and soil to grow.
what do cows eat = Cows eat grass.
what is the opposite of hot = The opposite of hot is cold.
at what temperature does water freeze = Water freezes at zero degrees.
at what temperature does water boil = Water boils at 100 degrees.
what comes after monday = Tuesday comes after Monday.
what comes after winter = Spring comes after winter.
what is the first month of the year = January is the first month of the year.
what is the last month of the year = December is the last month of the year.
what is the first day of the week = Monday is the first day of the week.
who wrote romeo and juliet = William Shakespeare wrote Romeo and Juliet.
who was albert einstein = Albert Einstein was a famous scientist who studied light, space and time.
who is shakespeare = William Shakespeare was a famous English writer.
what is the meaning of life = The meaning of life is something that everyone must find alone. \
Many people find it in kindness, friendship and good work.
what time is it = I do not have a clock, so I cannot tell you the time.
what day is it = I do not have a calendar, but I hope that it is a good day.
what is the weather = I cannot look out of the window, but I hope that the sun is shining.
what is the weather today = I cannot look out of the window, but I hope that the sun is shining.
what should i eat = A warm soup with fresh bread is always a good idea.
what is your favourite colour = My favourite colour is blue, like the sky in summer.
what is your favourite animal = My favourite animal is the fox, because there are many foxes in my \
stories.
what is your favourite food = I do not eat, but many of my stories end with apple pie.
what is it = It is a small question with a small answer. Tell me more, and I will try to help.
what is this = This is a node of a mesh network with a small language model on it.
what do you think = I think that a good story needs a friend, a problem and a happy end.""".split(
            "\n"
        )
    )
)

OPPOSITES = tuple(
    tuple(row.split(" "))
    for row in (
        "hot cold|big small|tall short|fast slow|light dark|day night|happy sad|up down|"
        "open closed|full empty|wet dry|hard soft|early late|loud quiet|strong weak|rich poor|"
        "near far|high low|good bad|clean dirty|black white|left right|young old"
    ).split("|")
)

GROUPS: dict[str, tuple[str, ...]] = {
    "fruits": ("apples", "pears", "plums", "bananas", "oranges", "cherries", "grapes"),
    "vegetables": ("carrots", "potatoes", "onions", "peas", "beans", "cabbage", "leeks"),
    "animals": ("cats", "dogs", "horses", "foxes", "bears", "owls", "rabbits"),
    "colours": ("red", "blue", "green", "yellow", "orange", "purple", "white"),
    "tools": ("a hammer", "a saw", "a brush", "a spoon", "a ladder", "a needle"),
    "instruments": ("the piano", "the flute", "the drum", "the violin", "the guitar"),
    "planets": ("Mercury", "Venus", "Mars", "Jupiter", "Saturn", "Uranus", "Neptune"),
    "birds": ("owls", "ducks", "hens", "swans", "crows", "robins"),
    "flowers": ("roses", "tulips", "daisies", "lilies", "sunflowers"),
    "drinks": ("water", "milk", "tea", "coffee", "apple juice", "lemonade"),
    "games": ("chess", "hide and seek", "tag", "football", "cards"),
}

WORDS = tuple(
    tuple(row.split(","))
    for row in """hello,bonjour,hola,hallo
thank you,merci,gracias,danke
good night,bonne nuit,buenas noches,gute Nacht
yes,oui,sí,ja
no,non,no,nein
please,s'il vous plaît,por favor,bitte
water,eau,agua,Wasser
bread,pain,pan,Brot
sun,soleil,sol,Sonne
friend,ami,amigo,Freund
house,maison,casa,Haus
cat,chat,gato,Katze""".split("\n")
)
"""English, French, Spanish, German."""
